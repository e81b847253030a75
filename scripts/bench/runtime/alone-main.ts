// A measurement in a process of its own: `alone-main.js <module> <export> <arguments as JSON>`; answers over the IPC channel.
const [module, name, args] = process.argv.slice(2) as [string, string, string];
const exports = (await import(module)) as Record<string, (args: unknown) => Promise<unknown>>;
const value = await exports[name]!(JSON.parse(args));
process.send!({ value }, undefined, undefined, () => process.exit());
