// binding.gyp's source lists: the *.cpp files directly in each given folder (missing folders count as empty), sorted.
import { readdirSync } from 'node:fs';

for (const folder of process.argv.slice(2)) {
  let names = [];
  try {
    names = readdirSync(folder);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  for (const name of names.sort()) if (name.endsWith('.cpp')) console.log(`${folder}/${name}`);
}
