// How much scratch the operators of a training pass take, said before anything is allocated. Each term mirrors the
// `floats` and `take` calls of one operator; test/kernels/memory.test.ts compares the sum with what a stream has held.
#include "gemm.h"
#include "operation.h"
#include "operators.h"
#include "vocabulary.h"

namespace SFX_NS {
namespace {

constexpr int64_t kFloat = (int64_t)sizeof(float);
constexpr int64_t kHeldFloats = 96 * 1024;  // of a thread, where a long product adds its old output last
constexpr int64_t kSlack = 64 * 1024;       // task lists and the alignment of each piece

int64_t product_bytes(const sfx_pass_shape& s) {
  return most(s.threads, 1) * (kProductScratch + kHeldFloats) * kFloat + kSlack;
}

int64_t attention_bytes(const sfx_pass_shape& s) {
  const int64_t tile = s.tiles * s.kv_heads * s.head_dim * 64, width = (s.head_dim + 15) / 16 * 16;
  const int64_t work = most(s.threads, 1) * 64;
  if (!s.backward) return (tile + work * (64 + 2 * width)) * kFloat + s.tiles * s.kv_heads + kSlack;
  return (2 * tile + s.n * s.heads + work * (128 + 3 * width)) * kFloat + kSlack;
}

int64_t experts_bytes(const sfx_pass_shape& s) {
  if (s.experts == 0) return 0;
  const int64_t pairs = s.n * s.top_k, sorted = pairs * 9 + s.n * 4 + s.experts * 512;
  const int64_t packs =
      most(s.threads, 1) * kProductScratch * kFloat + product_bytes(s);  // pieces, then whole products
  const int64_t low = 2 * pairs * s.expert_rank * (s.backward ? 2 : 1);
  const int64_t turned = s.backward ? s.experts * s.expert_rank * most(s.h, 2 * s.I) : 0;
  if (!s.backward) return (pairs * (2 * s.h + 3 * s.I) + low) * kFloat + sorted + packs;
  return (pairs * (3 * s.h + 4 * s.I + 1) + low + turned) * kFloat + sorted + packs;
}

int64_t head_bytes(const sfx_pass_shape& s) {
  const int64_t at_once = rows_at_once(most(s.threads, 1), s.V, s.rows);
  const int64_t back = s.backward ? at_once * s.h : 0;
  return s.n * 4 + (s.rows * s.h + back) * kFloat + logits_bytes(&s) + product_bytes(s);
}

}  // namespace

int64_t logits_bytes(const sfx_pass_shape* s) {
  return rows_at_once(most(s->threads, 1), s->V, s->rows) * s->V * kFloat;
}

int64_t workspace_bytes(const sfx_pass_shape* shape) {
  return most(most(attention_bytes(*shape), experts_bytes(*shape)), most(head_bytes(*shape), product_bytes(*shape)));
}

}  // namespace SFX_NS
