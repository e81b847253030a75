#!/usr/bin/env node
// The `sinkflex` command.
import { main } from './main.ts';

process.exitCode = await main(process.argv.slice(2));
// Nothing may keep a finished command alive.
setTimeout(() => process.exit(), 500).unref();
