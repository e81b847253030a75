// Which rows a step has, and which pages they read and write.
#include <algorithm>

#include "scheduler.h"

namespace sinkflex {

namespace {
constexpr int64_t kPage = PageCache::kPageTokens;
}

// One row for every sequence that decodes; what is left of the step goes to those that read, in order of arrival.
void Scheduler::schedule() {
  pass_->clear();
  full_ = false;
  int64_t left = options_.step_rows, decoding = 0;
  const auto unread = [&](const Generation& g) {
    const Sequence& s = sequences_[static_cast<size_t>(g.sequence)];
    return static_cast<int64_t>(s.ids.size()) - s.length;
  };
  for (auto& g : active_) {
    g->draw = -1;
    if (unread(*g) == 1) ++decoding;
  }
  // By index: who comes later may lose pages to who comes first, and reads more then, not less.
  for (size_t i = 0; i < active_.size() && left > 0; ++i) {
    Generation& g = *active_[i];
    if (unread(g) == 1) {
      --decoding;
      left -= schedule_rows(g, i, 1);
    } else if (attach(g, i)) {
      left -= schedule_rows(g, i, std::max<int64_t>(left - decoding, i == 0));
    }
  }
}

int64_t Scheduler::schedule_rows(Generation& g, size_t index, int64_t most) {
  Sequence& s = sequences_[static_cast<size_t>(g.sequence)];
  const int64_t unread = static_cast<int64_t>(s.ids.size()) - s.length, from = s.length;
  int64_t take = std::min(unread, most);
  for (int64_t at = static_cast<int64_t>(s.pages.size()); take > 0 && at * kPage < from + take; ++at) {
    const int32_t page = allocate_page(index);
    if (page < 0) {
      take = std::max<int64_t>(at * kPage - from, 0);
      break;
    }
    pass_->set_page(g.sequence, at, page);
    s.pages.push_back(page);
  }
  if (take <= 0) return 0;
  for (int64_t i = 0; i < take; ++i, ++s.length)
    pass_->add_row(g.sequence, static_cast<int32_t>(s.length), s.ids[static_cast<size_t>(s.length)]);
  g.known = std::max(g.known, s.length);
  if (take == unread) {
    g.sample.position = static_cast<uint32_t>(s.length);
    g.sample.edits = static_cast<int64_t>(g.rules.edits().size());
    g.sample.edit = g.rules.edits().data();
    if (g.sample.alternatives > 0) {
      const size_t at = g.alternatives.size(), more = static_cast<size_t>(g.sample.alternatives);
      g.alternatives.resize(at + more);
      g.alternative_logprobs.resize(at + more);
      g.sample.alternative = g.alternatives.data() + at;
      g.sample.alternative_logprob = g.alternative_logprobs.data() + at;
    }
    g.draw = pass_->add_draw(g.sample);
  }
  enter_pages(s, from, take == unread && unread > 1);
  return take;
}

bool Scheduler::attach(Generation& g, size_t index) {
  Sequence& s = sequences_[static_cast<size_t>(g.sequence)];
  const bool begins = s.pages.empty();
  if (begins && full_) return false;
  const int64_t from = s.length,
                last = static_cast<int64_t>(s.ids.size()) - 1;  // is read in any case: the next token is drawn from it
  bool wait = false;
  while (options_.share_prefixes && s.pure && s.length % kPage == 0 && s.length < last) {
    const auto m = cache_.find(s.node, s.ids.data() + s.length, std::min(last - s.length, kPage), step_);
    if (m.tokens == 0) break;
    if (m.node != PageCache::kRoot) {
      cache_.retain(m.page);
      pass_->set_page(g.sequence, static_cast<int64_t>(s.pages.size()), m.page);
      s.pages.push_back(m.page);
      s.node = m.node;
    } else if (!m.ready) {
      // Computed in this very step, so not to be copied yet. Waiting costs less than computing it twice.
      if (g.waited == s.length) break;
      g.waited = s.length;
      wait = true;
      break;
    } else {
      cache_.retain(m.page);  // making room must not evict it
      const int32_t page = allocate_page(index);
      if (page >= 0) {
        pass_->copy_page(m.page, page);
        pass_->set_page(g.sequence, static_cast<int64_t>(s.pages.size()), page);
        s.pages.push_back(page);
      }
      cache_.release(m.page);
      if (page < 0) break;
    }
    s.length += m.tokens;
  }
  if (begins && index > 0 && !admit(s)) {
    full_ = true;  // nobody overtakes it
    drop_pages(s);
    return false;
  }
  counters.prefix_hits += s.length - from;
  g.cached += std::max<int64_t>(s.length - g.known, 0);
  g.known = std::max(g.known, s.length);
  return !wait;
}

// Whether there is room for all that it will read: one that begins takes no pages from those under way.
bool Scheduler::admit(const Sequence& s) {
  const int64_t needed = static_cast<int64_t>(s.ids.size()) / kPage + 1 - static_cast<int64_t>(s.pages.size());
  while (cache_.available() < needed)
    if (!release_idle()) return false;
  return true;
}

// Takes them from sequences between turns, then from those that arrived after the one that asks: the first to arrive
// can always go on, since there are pages enough for any one sequence.
int32_t Scheduler::allocate_page(size_t index) {
  for (;;) {
    const int32_t page = cache_.allocate();
    if (page >= 0) return page;
    if (release_idle()) continue;
    size_t last = active_.size();
    while (--last > index && sequences_[static_cast<size_t>(active_[last]->sequence)].pages.empty()) {
    }
    if (last <= index) return -1;
    Sequence& victim = sequences_[static_cast<size_t>(active_[last]->sequence)];
    ++counters.preemptions;
    counters.prefix_queries += victim.length;
    drop_pages(victim);
  }
}

// The pages of the sequence between turns that was unused for longest.
bool Scheduler::release_idle() {
  Sequence* oldest = nullptr;
  for (Sequence& s : sequences_)
    if (!s.active && !s.pages.empty() && (!oldest || s.used < oldest->used)) oldest = &s;
  if (!oldest) return false;
  drop_pages(*oldest);
  return true;
}

// Lets others find the pages that its tokens from `from` on have filled; `end`: also the one that is not full yet.
void Scheduler::enter_pages(Sequence& s, int64_t from, bool end) {
  if (!options_.share_prefixes || !s.pure) return;
  const auto enter = [&](int64_t page, int64_t count) {
    return cache_.insert(s.node, s.ids.data() + page * kPage, count, s.pages[static_cast<size_t>(page)], step_);
  };
  for (int64_t page = from / kPage; (page + 1) * kPage <= s.length; ++page) s.node = enter(page, kPage);
  if (end && s.length % kPage != 0) enter(s.length / kPage, s.length % kPage);
}

void Scheduler::drop_pages(Sequence& s) {
  for (size_t i = s.pages.size(); i-- > 0;) cache_.release(s.pages[i]);  // ends go before what they stand on
  s.pages.clear();
  s.length = 0;
  s.node = PageCache::kRoot;
  s.pure = true;
}

// The experts that its tokens went to, from the first that this turn has read; those of a token that is not in the
// cache are unknown.
void Scheduler::gather_experts(Generation& g, const Sequence& s) {
  if (!options_.record_experts || config_.experts == 0) return;
  const size_t each = static_cast<size_t>(config_.layers * config_.top_k);
  const int64_t end = static_cast<int64_t>(s.ids.size()) - 1;
  g.experts.assign(static_cast<size_t>(std::max<int64_t>(end - g.begun, 0)) * each, PagedPass::kUnknownExpert);
  for (int64_t t = g.begun; t < std::min(end, s.length); ++t)
    std::copy_n(pass_->experts(s.pages[static_cast<size_t>(t / kPage)], t % kPage), each,
                g.experts.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(t - g.begun) * each));
}

}  // namespace sinkflex
