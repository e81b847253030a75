// A Node that waits for its program on descriptor 3. What every program uses is loaded before: while it waits, or in the snapshot that it starts from.
'use strict';
const fs = require('node:fs');
const Module = require('node:module');
const { setPriority } = require('node:os');
const { startupSnapshot } = require('node:v8');
require('node:net');
require('node:util').inspect({ warm: [1, 'two'] });

function run() {
  process.stdout;
  process.stderr;
  // A Node that the program starts is no runner.
  process.execArgv = process.execArgv.filter((flag) => !flag.includes('snapshot'));
  const code = fs.readFileSync(3, 'utf8');
  fs.closeSync(3);
  // Behind the supervisor from here on, as other programs are; before, somebody may wait for it.
  setPriority(10);
  process.argv[1] = '/episode/main.js';
  const program = new Module('/episode/main.js', null);
  program.filename = '/episode/main.js';
  program.paths = ['/episode/node_modules'];
  process.mainModule = program;
  program._compile(code, '/episode/main.js');
}

if (startupSnapshot.isBuildingSnapshot()) startupSnapshot.setDeserializeMainFunction(run);
else run();
