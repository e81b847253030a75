// A real model: 32 greedy tokens beside transformers. Needs SINKFLEX_REAL_MODEL (a folder or a name of the hub) and SINKFLEX_PEERS (a Python).
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import t from 'tap';
import { downloadModel, isHubName, ServedModel } from '../../actors/index.ts';

const name = process.env.SINKFLEX_REAL_MODEL;
const python = process.env.SINKFLEX_PEERS;
const script = `
import json, sys, torch
from transformers import AutoModelForCausalLM
folder, ids = sys.argv[1], json.loads(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False, temperature=None,
    top_p=None, top_k=None, max_new_tokens=32, min_new_tokens=32, repetition_penalty=1.0, eos_token_id=-1, pad_token_id=0)
print("tokens " + json.dumps(out[0, len(ids):].tolist()))
`;

const missing =
  name === undefined
    ? 'SINKFLEX_REAL_MODEL names no model'
    : python === undefined || !existsSync(python)
      ? 'SINKFLEX_PEERS names no Python with transformers'
      : false;

t.test('32 greedy tokens are those of transformers', { skip: missing, timeout: 900_000 }, async (t) => {
  const folder = isHubName(name!) ? await downloadModel(name!) : name!;
  const model = new ServedModel(folder, { maxModelLength: 512, maxSequences: 1, threads: 2 });
  const ids = model.tokenizer.encode('The quick brown fox jumps over the lazy dog. In the beginning');
  const answer = await model.answer(ids, {
    maxNewTokens: 32,
    temperature: 0,
    topK: 0,
    topP: 1,
    stop: [],
    ignoreEos: true,
    key: [0, 0, 0, 0],
  });
  await model.close();
  const peer = spawnSync(python!, ['-c', script, folder, JSON.stringify([...ids])], { encoding: 'utf8', timeout: 600_000 });
  const tokens = /^tokens (.*)$/m.exec(peer.stdout)?.[1];
  t.ok(tokens, peer.stderr.slice(-2000));
  t.same([...answer.tokens], JSON.parse(tokens ?? 'null'));
});
