// Pages of the key/value cache: who refers to them, and which of them hold a prefix that others may go on from. A radix
// tree over token ids whose edges are pages: a node is a run of full pages from position 0, its children are the pages
// that follow it, full ones and ends of prompts and turns. A full page is shared as it is; of any other, and of one
// that agrees only in its first tokens, the caller copies what agrees (copy on write).
//
// Everything in the tree was computed with one version of the weights; clear() when they change. A page that nobody
// refers to stays until room is needed, the one unused for longest goes first; ends before what they stand on, if they
// are released in that order.
#ifndef SINKFLEX_MODEL_PAGE_CACHE_H
#define SINKFLEX_MODEL_PAGE_CACHE_H

#include <array>
#include <cstdint>
#include <set>
#include <vector>

namespace sinkflex {

class PageCache {
 public:
  static constexpr int64_t kPageTokens = 64;
  using Node = uint64_t;
  static constexpr Node kRoot = 0;

  struct Match {
    int32_t page = -1;
    int64_t tokens = 0;  // that agree, from the page's first
    Node node = kRoot;   // of a full page that agrees in all
    bool ready = false;  // its keys and values were computed before this step
  };

  explicit PageCache(int64_t pages);

  // A page that holds nothing, referred to once; evicts if it must. -1: all are referred to.
  int32_t allocate();
  void retain(int32_t page);
  void release(int32_t page);

  // The child of `parent` that agrees with most of `tokens`.
  Match find(Node parent, const int32_t* tokens, int64_t count, uint64_t step) const;
  // `page` holds these tokens after `parent`, from this step on. Answers the node of a full page, which is that of
  // another page with the same tokens if there is one.
  Node insert(Node parent, const int32_t* tokens, int64_t count, int32_t page, uint64_t step);
  void clear();

  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
  int64_t available() const { return static_cast<int64_t>(free_.size()) + unused_; }  // free, or only kept
  int64_t kept() const { return unused_; }  // nobody refers to them, somebody may again

 private:
  struct Entry {
    Node parent;
    std::array<int32_t, kPageTokens> tokens;
    int64_t count;
    Node node;
    int32_t page;
    uint64_t step;
  };
  struct Query {
    Node parent;
    const int32_t* tokens;
    int64_t count;
  };
  struct Less {
    using is_transparent = void;
    static bool less(Query a, Query b);
    static Query of(const Entry& e) { return {e.parent, e.tokens.data(), e.count}; }
    bool operator()(const Entry& a, const Entry& b) const { return less(of(a), of(b)); }
    bool operator()(const Entry& a, Query b) const { return less(of(a), b); }
    bool operator()(Query a, const Entry& b) const { return less(a, of(b)); }
  };
  using Entries = std::set<Entry, Less>;
  struct Page {
    int32_t references = 0;
    bool entered = false;
    Entries::iterator entry{};
    int32_t before = -1, after = -1;  // neighbours among the unused, oldest first
  };

  void forget(int32_t page);  // its entry
  void link(int32_t page);
  void unlink(int32_t page);

  std::vector<Page> pages_;
  std::vector<int32_t> free_;
  Entries entries_;
  Node next_ = 1;
  int32_t oldest_ = -1, newest_ = -1;
  int64_t unused_ = 0;
};

}  // namespace sinkflex
#endif
