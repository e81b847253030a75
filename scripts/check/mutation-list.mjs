// The bugs of npm run test:mutations in attention: `from` stands once in the file of kernels/cuda and becomes `to`.
const forward = 'attention-forward.cu';
const backward = 'attention-backward.cu';
const shared = 'attention.cuh';
const fragments = 'fragments.cuh';
const barrier = '    __syncthreads();  // this stage is there for all, and nobody reads the other one any more\n';

/** @type {{ name: string, file: string, from: string, to: string }[]} */
export const mutations = [
  { name: 'forward: no barrier between stages', file: forward, from: barrier, to: '' },
  { name: 'forward: cp.async is not waited for', file: forward, from: 'copy_async_wait<0>()', to: 'copy_async_wait<1>()' },
  {
    name: 'forward: the next tile goes into the stage in use',
    file: forward,
    from: 'load_keys(next, stage ^ 1)',
    to: 'load_keys(next, stage)',
  },
  { name: 'forward: the sink is counted by four lanes', file: forward, from: 'seeded && t == 0 ? 1.0f', to: 'seeded ? 1.0f' },
  { name: 'forward: the sink does not seed the sum', file: forward, from: 'seeded && t == 0 ? 1.0f : 0.0f', to: '0.0f' },
  {
    name: 'forward: wrong key head of a group',
    file: shared,
    from: 'kv_head = head / a.group',
    to: 'kv_head = head % a.group',
  },
  { name: 'forward: lse in base 2', file: forward, from: 'largest[r] * kLn2', to: 'largest[r]' },
  { name: 'forward: lse of the wrong row', file: forward, from: '(tile.begin + row[r]) * a.heads', to: '(row[r]) * a.heads' },
  { name: 'forward: a tile on the diagonal counts as whole', file: shared, from: 'key0 + kKeys - 1 <= row0', to: 'key0 <= row0' },
  { name: 'forward: whole by the first row alone', file: shared, from: '(low_last <= key0', to: '(low_first <= key0' },
  { name: 'forward: sums are not rescaled', file: forward, from: 'sum[r] * rescale + all', to: 'sum[r] + all' },
  {
    name: 'forward: outputs are not rescaled',
    file: forward,
    from: 'out[j][2 * r] *= rescale, out[j][2 * r + 1] *= rescale;',
    to: 'out[j][2 * r] *= rescale;',
  },
  {
    name: 'forward: the largest of half a row',
    file: forward,
    from: '      top = fmaxf(top, __shfl_xor_sync(kWholeWarp, top, 2));\n',
    to: '',
  },
  { name: 'forward: the sum of half a row', file: forward, from: '    sum[r] += __shfl_xor_sync(kWholeWarp, sum[r], 2);\n', to: '' },
  { name: 'forward: NaN where nothing was seen yet', file: forward, from: 'found == -SFX_INFINITE ? 0.0f : found', to: 'found' },
  {
    name: 'forward: no warp barrier before rows of q are written over',
    file: forward,
    from: "  __syncwarp();  // the warp's rows of q were read by all its lanes\n",
    to: '',
  },
  { name: 'shared: first tile off by one', file: shared, from: 'low / kKeys * kKeys', to: '(low + 1) / kKeys * kKeys' },
  { name: 'shared: window off by one', file: shared, from: 'larger(t - view.window, 0)', to: 'larger(t - view.window + 1, 0)' },
  { name: 'shared: prefix off by one', file: shared, from: 'key < prefix);', to: 'key <= prefix);' },
  { name: 'shared: keys after the query are seen', file: shared, from: 'return key <= t &&', to: 'return key <= t + 1 &&' },
  { name: 'shared: documents are not kept apart', file: shared, from: 'view.start ? larger(low, view.start[begin + t]) : low', to: 'low' },
  { name: 'shared: document starts of another segment', file: shared, from: 'view.start[begin + t]', to: 'view.start[t]' },
  { name: 'shared: ALiBi rises', file: shared, from: 'x - alibi * (float)distance', to: 'x + alibi * (float)distance' },
  {
    name: 'shared: the tail of a tile is never written',
    file: shared,
    from: '    copy_async(shared + r',
    to: '    if (there) copy_async(shared + r',
  },
  {
    name: 'shared: rows of A by the wrong lanes',
    file: fragments,
    from: '(lane % 16) * (kDepth + 8) + k + lane / 16 * 8',
    to: '(lane % 16) * (kDepth + 8) + k + lane / 8 % 2 * 8',
  },
  { name: 'shared: V is not transposed', file: fragments, from: 'load_matrices_transposed(b, rows', to: 'load_matrices(b, rows' },
  {
    name: 'shared: halves of P change places',
    file: shared,
    from: 'pack(T{}, low[2], low[3]), pack(T{}, high[0], high[1])',
    to: 'pack(T{}, high[0], high[1]), pack(T{}, low[2], low[3])',
  },
  { name: 'shared: no warp barrier before staged rows are read', file: shared, from: '    __syncwarp();\n', to: '' },
  {
    name: 'shared: the gate lets delta through unscaled',
    file: shared,
    from: 'return {f, logf(f), 1.0f / f,',
    to: 'return {f, logf(f), 1.0f,',
  },
  {
    name: 'backward: no sink path in dS',
    file: backward,
    from: 'float used = lse,',
    to: 'float used = sink == -SFX_INFINITE ? lse : lse + log1pf(-expf(sink - lse)),',
  },
  { name: 'backward: dsink has the wrong sign', file: backward, from: 'dsink -= share * delta', to: 'dsink += share * delta' },
  { name: 'backward: the sink share in base 2', file: backward, from: ': expf(sink - lse)', to: ': exp2f(sink - lse)' },
  { name: 'backward: the gradient of lse is added', file: backward, from: 'delta = sum - g;', to: 'delta = sum + g;' },
  {
    name: 'backward: no barrier before partial sums are added',
    file: backward,
    from: '  if (lane == 0) shared[warp] = dsink;\n  __syncthreads();\n',
    to: '  if (lane == 0) shared[warp] = dsink;\n',
  },
  {
    name: 'backward: the last chunk of dsink is left out',
    file: backward,
    from: 'i < chunks; i += kWarpSize',
    to: 'i < chunks - 1; i += kWarpSize',
  },
  {
    name: 'backward: always the first query head of a group',
    file: backward,
    from: 'load_queries(kv_head * a.group + next_member, next_query, stage ^ 1)',
    to: 'load_queries(kv_head * a.group, next_query, stage ^ 1)',
  },
  {
    name: 'backward: the walk of a window ends early',
    file: backward,
    from: 'lowest(a.view, tile.begin, query0) > last)',
    to: 'lowest(a.view, tile.begin, query0) >= last)',
  },
  { name: 'backward: delta is not subtracted in dK', file: backward, from: 'p[j][e] * (ds[j][e] - delta)', to: 'p[j][e] * ds[j][e]' },
  {
    name: 'backward: dK is not scaled',
    file: backward,
    from: 'store_rows<kDepth, kColumns>(dk, scale,',
    to: 'store_rows<kDepth, kColumns>(dk, one,',
  },
  {
    name: 'backward: no derivative of the softcap in dK',
    file: backward,
    from: '          if (kVaried) ds[j][e] *= slope[kVaried ? j : 0][e];\n',
    to: '',
  },
  {
    name: 'backward: dQ is not masked',
    file: backward,
    from: 'whole || sees(row[r], key, low[r], prefix) ? w',
    to: 'whole || row0 >= 0 ? w',
  },
  { name: 'backward: delta of the wrong row in dQ', file: backward, from: '(ds[j][e] - delta[r])', to: '(ds[j][e] - delta[0])' },
];
