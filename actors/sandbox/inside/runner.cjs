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
process.argv[1] = '/episode/main.js';
const program = new Module('/episode/main.js', null);
program.filename = '/episode/main.js';
program.paths = ['/episode/node_modules'];
require.main = process.mainModule = program;
program._compile(code, '/episode/main.js');
