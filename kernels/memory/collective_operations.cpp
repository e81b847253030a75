// The operations. Each step stages a chunk, works on what was staged before the last meeting, then meets: one meeting a
// chunk, with what is read and what is written always in different halves (collective_block.h).
#include <algorithm>
#include <cstring>

#include "collective_block.h"
#include "collective_state.h"

namespace sinkflex {
namespace {

enum Kind : uint32_t { kBarrier = 1, kAllReduce = 2, kReduceScatter = 3, kAllGather = 4, kBroadcast = 5 };

// Below this, every member reduces all of it by itself: a meeting less.
constexpr uint64_t kSmallBytes = 16384;
constexpr uint64_t kBlock = 2048;  // floats that stay in the first-level cache while the members are added

// memcpy, also of nothing from nowhere.
void copy(void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

template <typename Combine>
void fold_blocks(float* out, const float* const* parts, uint32_t members, uint64_t count, Combine combine) {
  for (uint64_t from = 0; from < count; from += kBlock) {
    const uint64_t n = std::min(kBlock, count - from);
    float* __restrict to = out + from;
    if (members == 1) {
      copy(to, parts[0] + from, n * sizeof(float));
      continue;
    }
    const float* __restrict a = parts[0] + from;
    const float* __restrict b = parts[1] + from;
    for (uint64_t i = 0; i < n; i++) to[i] = combine(a[i], b[i]);
    for (uint32_t r = 2; r < members; r++) {
      const float* __restrict c = parts[r] + from;
      for (uint64_t i = 0; i < n; i++) to[i] = combine(to[i], c[i]);
    }
  }
}

// out[i] = (((x_0[i] o x_1[i]) o x_2[i]) o ...): always from rank 0 upwards.
void fold_parts(Fold fold, float* out, const float* const* parts, uint32_t members, uint64_t count) {
  switch (fold) {
    case Fold::min:
      return fold_blocks(out, parts, members, count, [](float a, float b) { return b < a || b != b ? b : a; });
    case Fold::max:
      return fold_blocks(out, parts, members, count, [](float a, float b) { return b > a || b != b ? b : a; });
    case Fold::sum:
    case Fold::mean:
      fold_blocks(out, parts, members, count, [](float a, float b) { return a + b; });
  }
  if (fold != Fold::mean) return;
  const float n = static_cast<float>(members);
  for (uint64_t i = 0; i < count; i++) out[i] /= n;
}

// Slice of a chunk that a member reduces, on whole cache lines.
uint64_t slice_start(uint64_t count, uint32_t rank, uint32_t members) {
  if (rank >= members) return count;
  return std::min(count, (count * rank / members + 15) / 16 * 16);
}

}  // namespace

void CollectiveMember::barrier(const CollectiveWait& wait) {
  declare(kBarrier, 0, 0);
  meet(wait);
  agree();
}

void CollectiveMember::all_reduce(float* data, uint64_t count, Fold fold, const CollectiveWait& wait) {
  CollectiveBlock& block = group_->state_->block();
  declare(kAllReduce, static_cast<uint32_t>(fold), count);
  const uint64_t chunk = block.chunk_bytes / sizeof(float);
  const uint64_t chunks = std::max<uint64_t>(1, (count + chunk - 1) / chunk);
  const auto size_of = [&](uint64_t i) { return std::min(chunk, count - i * chunk); };
  const float* parts[kMemberLimit];
  const auto staged = [&](uint32_t phase, uint64_t from) {
    for (uint32_t r = 0; r < members_; r++) parts[r] = reinterpret_cast<const float*>(block.staging(phase, r)) + from;
    return parts;
  };
  const bool small = count * sizeof(float) <= kSmallBytes && chunks == 1;
  for (uint64_t i = 0; i <= chunks; i++) {
    const uint32_t phase = next();
    if (i < chunks) copy(block.staging(phase, rank_), data + i * chunk, size_of(i) * sizeof(float));
    if (i >= 1) {
      const uint64_t n = size_of(i - 1);
      const uint64_t from = slice_start(n, rank_, members_);
      const uint64_t to = slice_start(n, rank_ + 1, members_);
      fold_parts(fold, block.result(phase) + from, staged(phase - 1, from), members_, to - from);
    }
    if (i >= 2) copy(data + (i - 2) * chunk, block.result(phase - 1), size_of(i - 2) * sizeof(float));
    meet(wait);
    if (i == 0) agree();
    if (small) return fold_parts(fold, data, staged(phase_, 0), members_, count);
  }
  copy(data + (chunks - 1) * chunk, block.result(phase_), size_of(chunks - 1) * sizeof(float));
}

void CollectiveMember::reduce_scatter(const float* in, uint64_t count, float* out, Fold fold,
                                      const CollectiveWait& wait) {
  CollectiveBlock& block = group_->state_->block();
  declare(kReduceScatter, static_cast<uint32_t>(fold), count);
  const auto start = [&](uint32_t r) { return count * r / members_; };
  // A chunk holds a piece of every member's slice, so that all have something to add in each step.
  const uint64_t piece = std::max<uint64_t>(1, block.chunk_bytes / sizeof(float) / members_);
  const uint64_t longest = (count + members_ - 1) / members_;
  const uint64_t chunks = std::max<uint64_t>(1, (longest + piece - 1) / piece);
  const auto size_of = [&](uint32_t r, uint64_t i) {
    const uint64_t length = start(r + 1) - start(r);
    return i * piece >= length ? 0 : std::min(piece, length - i * piece);
  };
  const float* parts[kMemberLimit];
  for (uint64_t i = 0; i <= chunks; i++) {
    if (i < chunks) {
      auto* to = reinterpret_cast<float*>(block.staging(next(), rank_));
      for (uint32_t r = 0; r < members_; r++)
        copy(to + r * piece, in + start(r) + i * piece, size_of(r, i) * sizeof(float));
    }
    if (i >= 1) {
      for (uint32_t r = 0; r < members_; r++)
        parts[r] = reinterpret_cast<const float*>(block.staging(phase_, r)) + rank_ * piece;
      fold_parts(fold, out + (i - 1) * piece, parts, members_, size_of(rank_, i - 1));
    }
    if (i == chunks) return;
    meet(wait);
    if (i == 0) agree();
  }
}

void CollectiveMember::all_gather(const uint8_t* in, uint64_t bytes, uint8_t* out, const CollectiveWait& wait) {
  CollectiveBlock& block = group_->state_->block();
  declare(kAllGather, 0, bytes);
  const uint64_t chunk = block.chunk_bytes;
  const uint64_t chunks = std::max<uint64_t>(1, (bytes + chunk - 1) / chunk);
  const auto size_of = [&](uint64_t i) { return std::min(chunk, bytes - i * chunk); };
  for (uint64_t i = 0; i <= chunks; i++) {
    if (i < chunks) copy(block.staging(next(), rank_), in + i * chunk, size_of(i));
    if (i >= 1)
      for (uint32_t r = 0; r < members_; r++)
        copy(out + r * bytes + (i - 1) * chunk, block.staging(phase_, r), size_of(i - 1));
    if (i == chunks) return;
    meet(wait);
    if (i == 0) agree();
  }
}

void CollectiveMember::broadcast(uint8_t* data, uint64_t bytes, uint32_t root, const CollectiveWait& wait) {
  CollectiveBlock& block = group_->state_->block();
  declare(kBroadcast, root, bytes);
  const uint64_t chunk = block.chunk_bytes;
  const uint64_t chunks = std::max<uint64_t>(1, (bytes + chunk - 1) / chunk);
  const auto size_of = [&](uint64_t i) { return std::min(chunk, bytes - i * chunk); };
  for (uint64_t i = 0; i <= chunks; i++) {
    if (rank_ == root && i < chunks) copy(block.staging(next(), root), data + i * chunk, size_of(i));
    if (rank_ != root && i >= 1) copy(data + (i - 1) * chunk, block.staging(phase_, root), size_of(i - 1));
    if (i == chunks) return;
    meet(wait);
    if (i == 0) agree();
  }
}

}  // namespace sinkflex
