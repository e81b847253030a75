// Calls between actors: a counter, and a pipeline of two actors in processes of their own.
//   npm run build && node dist/examples/actors/main.js
import { get, init, shutdown, spawn } from 'sinkflex/runtime';
import { Counter, Splitter, Tally } from './actors.ts';

await init();

const counter = spawn(Counter, { isolation: 'thread' }); // a handle, at once
const five = counter.add(5); // a ref: the call is under way
const seven = counter.add(2);
const sum = counter.add(five); // a ref as an argument: its value goes to the callee
console.log(await five, await seven, await sum); // 5 7 12

const tally = spawn(Tally); // a process
const splitter = spawn(Splitter, { args: [tally], maxConcurrency: 4 }); // another one, which calls the first
await get(['the bike is in the dock', 'the dock is full', 'push the latch'].map((text) => splitter.line(text)));
console.log(await tally.top(2)); // [ [ 'the', 4 ], [ 'dock', 2 ] ]

await shutdown();
