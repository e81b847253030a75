#include "page_cache.h"

#include <algorithm>

namespace sinkflex {

namespace {
int64_t agreement(const int32_t* a, int64_t a_count, const int32_t* b, int64_t b_count) {
  const int64_t most = std::min(a_count, b_count);
  return std::mismatch(a, a + most, b).first - a;
}
}  // namespace

bool PageCache::Less::less(Query a, Query b) {
  if (a.parent != b.parent) return a.parent < b.parent;
  return std::lexicographical_compare(a.tokens, a.tokens + a.count, b.tokens, b.tokens + b.count);
}

PageCache::PageCache(int64_t pages) : pages_(static_cast<size_t>(pages)) {
  free_.reserve(pages_.size());
  for (int64_t i = pages; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
}

int32_t PageCache::allocate() {
  if (free_.empty()) {
    if (oldest_ < 0) return -1;
    const int32_t page = oldest_;
    unlink(page);
    forget(page);
    free_.push_back(page);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[static_cast<size_t>(page)].references = 1;
  return page;
}

void PageCache::retain(int32_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  if (p.references++ == 0) unlink(page);
}

void PageCache::release(int32_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  if (--p.references > 0) return;
  if (p.entered)
    link(page);
  else
    free_.push_back(page);
}

PageCache::Match PageCache::find(Node parent, const int32_t* tokens, int64_t count, uint64_t step) const {
  Match best;
  const auto consider = [&](const Entry& e) {
    if (e.parent != parent) return;
    const int64_t agreeing = agreement(e.tokens.data(), e.count, tokens, count);
    const bool ready = e.step < step;
    if (agreeing > best.tokens || (agreeing > 0 && agreeing == best.tokens && ready && !best.ready))
      best = {e.page, agreeing, agreeing == kPageTokens ? e.node : kRoot, ready};
  };
  // Of a sorted set, what agrees most with a string stands next to where it would.
  const auto at = entries_.lower_bound(Query{parent, tokens, count});
  if (at != entries_.end()) consider(*at);
  if (at != entries_.begin()) consider(*std::prev(at));
  return best;
}

PageCache::Node PageCache::insert(Node parent, const int32_t* tokens, int64_t count, int32_t page, uint64_t step) {
  const auto at = entries_.lower_bound(Query{parent, tokens, count});
  if (at != entries_.end() && at->parent == parent && agreement(at->tokens.data(), at->count, tokens, count) == count)
    return at->count == count ? at->node : kRoot;  // it says the same, or more
  forget(page);                                    // an end that has grown
  Entry e{parent, {}, count, next_++, page, step};
  std::copy(tokens, tokens + count, e.tokens.begin());
  Page& p = pages_[static_cast<size_t>(page)];
  p.entry = entries_.insert(e).first;
  p.entered = true;
  return e.node;
}

void PageCache::clear() {
  while (oldest_ >= 0) {
    const int32_t page = oldest_;
    unlink(page);
    free_.push_back(page);
  }
  for (Page& p : pages_) p.entered = false;
  entries_.clear();
}

void PageCache::forget(int32_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  if (!p.entered) return;
  entries_.erase(p.entry);
  p.entered = false;
}

void PageCache::link(int32_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  p.before = newest_;
  p.after = -1;
  (newest_ < 0 ? oldest_ : pages_[static_cast<size_t>(newest_)].after) = page;
  newest_ = page;
  ++unused_;
}

void PageCache::unlink(int32_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  (p.before < 0 ? oldest_ : pages_[static_cast<size_t>(p.before)].after) = p.after;
  (p.after < 0 ? newest_ : pages_[static_cast<size_t>(p.after)].before) = p.before;
  p.before = p.after = -1;
  --unused_;
}

}  // namespace sinkflex
