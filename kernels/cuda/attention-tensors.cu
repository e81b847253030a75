// What the attention operators do before and after their kernels: checks, tiles, tensors in the storage that the
// kernels read (copied only where dtype, strides or alignment differ).
#include <algorithm>

#include "attention.cuh"
#include "convert.cuh"

namespace sfx::cuda {

namespace {

constexpr int kSizes[] = {
#define SFX_SIZE(size) size,
    SFX_HEAD_SIZES(SFX_SIZE)
#undef SFX_SIZE
};

bool is_heads(const sfx_tensor* t) { return t->rank == 3 && (t->stride[2] == 1 || t->shape[2] <= 1); }

int64_t bytes_of(int32_t dtype) { return dtype == SFX_F32 ? 4 : 2; }

// Whether kernels can read the tensor where it lies: 16-bit ones by pieces of 16 bytes.
bool aligned(const AttentionCall& c, const sfx_tensor& t) {
  constexpr int64_t kPiece = 8;
  return c.dtype == SFX_F32 || (c.depth % kPiece == 0 && t.stride[0] % kPiece == 0 && t.stride[1] % kPiece == 0 &&
                                (uintptr_t)t.data % 16 == 0);
}

}  // namespace

int32_t prepare_attention(sfx_stream* stream, Scratch* scratch, const sfx_tensor* q, const sfx_tensor* k,
                          const float* sink, const int32_t* cu_seqlens, int64_t segments,
                          const sfx_attention_mask* mask, AttentionCall* c) {
  SFX_REQUIRE(is_heads(q) && is_heads(k), "attention: heads must be contiguous in D");
  c->scratch = scratch;
  c->n = q->shape[0], c->heads = q->shape[1], c->kv_heads = k->shape[1], c->depth = q->shape[2];
  SFX_REQUIRE(c->kv_heads > 0 && c->heads % c->kv_heads == 0,
              "attention: %lld query heads are no multiple of %lld key heads", (long long)c->heads,
              (long long)c->kv_heads);
  SFX_REQUIRE(k->shape[2] == c->depth, "attention: q has heads of %lld, k of %lld", (long long)c->depth,
              (long long)k->shape[2]);
  SFX_REQUIRE(c->n < INT32_MAX - kTileRows && c->heads < 65536, "attention: too many tokens or heads for one call");
  c->padded = 0;
  for (int size : kSizes)
    if (c->padded == 0 && size >= c->depth) c->padded = size;
  if (c->padded == 0)
    return fail(SFX_UNSUPPORTED, "attention: heads of %lld; the CUDA kernels take up to %d", (long long)c->depth,
                kSizes[sizeof kSizes / sizeof *kSizes - 1]);
  c->dtype = q->dtype;
  if (c->dtype == SFX_F32) c->padded = c->depth;
  const sfx_attention_variant none = {}, &v = mask->variant ? *mask->variant : none;
  SFX_REQUIRE(v.sink_function >= SFX_SINK_SIGMOID && v.sink_function <= SFX_SINK_SATURATION,
              "attention: unknown sink function %d", v.sink_function);
  SFX_REQUIRE(v.softcap >= 0, "attention: softcap is below 0");
  std::vector<int32_t> cu((size_t)segments + 1);
  SFX_TRY(copy(stream, cu.data(), cu_seqlens, (segments + 1) * 4));
  SFX_REQUIRE(cu[0] == 0 && cu.back() <= c->n, "attention: segments end at %d, q has %lld rows", cu.back(),
              (long long)c->n);
  c->n = cu.back();
  for (int64_t s = 0; s < segments; s++) {
    SFX_REQUIRE(cu[s] <= cu[s + 1], "attention: segment %lld ends before it begins", (long long)s);
    for (int32_t t = 0; t < cu[s + 1] - cu[s]; t += kTileRows) c->tiles.push_back({cu[s], cu[s + 1] - cu[s], t, 0});
  }
  c->function = sink ? v.sink_function : (int32_t)SFX_SINK_SIGMOID;
  c->sink = scratch->input(sink, c->heads);
  c->dlse = scratch->input(v.dlse, c->n * c->heads);
  c->view.window = mask->window < 0 ? -1 : (int32_t)std::min<int64_t>(mask->window, INT32_MAX);
  c->view.prefix = (int32_t)std::clamp<int64_t>(mask->prefix, 0, INT32_MAX - kTileRows);
  c->view.scale = mask->scale, c->view.softcap = v.softcap;
  c->view.start = scratch->input(v.document_start, c->n);
  c->view.slopes = scratch->input(v.slopes, c->heads);
  // The plain path multiplies the largest score after it was found, which needs a positive scale.
  c->varied = v.slopes || v.softcap > 0 || !(mask->scale > 0);
  return scratch->status();
}

const Tile* tiles_of_queries(AttentionCall& c) {
  std::stable_sort(c.tiles.begin(), c.tiles.end(), [](const Tile& a, const Tile& b) { return a.first > b.first; });
  return c.scratch->input(c.tiles);
}
const Tile* tiles_of_keys(AttentionCall& c) {
  std::stable_sort(c.tiles.begin(), c.tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.length - a.first > b.length - b.first; });
  return c.scratch->input(c.tiles);
}

int32_t readable(const AttentionCall& c, const sfx_tensor* t, Heads* heads) {
  SFX_REQUIRE(is_heads(t) && t->shape[0] >= c.n && t->shape[2] == c.depth,
              "attention: tensors must be [n, heads, D], D contiguous");
  sfx_tensor there = *t;
  if (!is_device_memory(t->data)) {
    SFX_REQUIRE(t->stride[1] == c.depth && t->stride[0] == t->shape[1] * c.depth,
                "attention: tensors in the host's memory must be dense");
    const int64_t bytes = c.n * t->stride[0] * bytes_of(t->dtype);
    there.data = const_cast<char*>(c.scratch->input(static_cast<const char*>(t->data), bytes));
  }
  SFX_TRY(c.scratch->status());
  if (t->dtype == c.dtype && aligned(c, there)) {
    *heads = {there.data, t->stride[0], t->stride[1]};
    return SFX_OK;
  }
  char* copied = c.scratch->take<char>(c.n * t->shape[1] * c.padded * bytes_of(c.dtype));
  if (!copied) return SFX_OUT_OF_MEMORY;
  *heads = {copied, t->shape[1] * c.padded, c.padded};
  return gather_heads(c.scratch->stream(), there, copied, c.dtype, c.padded);
}

int32_t writable(const AttentionCall& c, const sfx_tensor* t, Heads* heads) {
  SFX_REQUIRE(is_heads(t) && t->shape[0] >= c.n && t->shape[2] == c.depth,
              "attention: tensors must be [n, heads, D], D contiguous");
  SFX_REQUIRE(is_device_memory(t->data), "attention: results go to device memory");
  if (t->dtype == c.dtype && aligned(c, *t)) {
    *heads = {t->data, t->stride[0], t->stride[1]};
    return SFX_OK;
  }
  char* apart = c.scratch->take<char>(c.n * t->shape[1] * c.padded * bytes_of(c.dtype));
  *heads = {apart, t->shape[1] * c.padded, c.padded};
  return apart ? SFX_OK : SFX_OUT_OF_MEMORY;
}

int32_t finish(const AttentionCall& c, const Heads& heads, const sfx_tensor* t) {
  return heads.data == t->data ? SFX_OK : scatter_heads(c.scratch->stream(), heads.data, c.dtype, c.padded, *t);
}

}  // namespace sfx::cuda
