// A Node that waits for its program on descriptor 3. What every program uses is loaded while it waits.
'use strict';
const fs = require('node:fs');
const Module = require('node:module');
require('node:util').inspect({ warm: [1, 'two'] });
process.stdout;
process.stderr;
const code = fs.readFileSync(3, 'utf8');
fs.closeSync(3);
// Behind the supervisor from here on, as other programs are; before, somebody may wait for it.
require('node:os').setPriority(10);
process.argv[1] = '/work/main.js';
const program = new Module('/work/main.js', null);
program.filename = '/work/main.js';
program.paths = ['/work/node_modules'];
require.main = process.mainModule = program;
program._compile(code, '/work/main.js');
