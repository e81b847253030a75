// Strings that end a turn, found in the bytes of its tokens, wherever tokens begin and end.
#ifndef SINKFLEX_MODEL_STOP_STRINGS_H
#define SINKFLEX_MODEL_STOP_STRINGS_H

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sinkflex {

// What each token says: bytes [offsets[id], offsets[id + 1]). Tokens that say nothing have none.
struct TokenBytes {
  std::string bytes;
  std::vector<int32_t> offsets;
  std::string_view of(int32_t id) const {
    const size_t at = static_cast<size_t>(id);
    if (at + 1 >= offsets.size()) return {};
    return std::string_view(bytes).substr(static_cast<size_t>(offsets[at]),
                                          static_cast<size_t>(offsets[at + 1] - offsets[at]));
  }
};

class StopStrings {
 public:
  std::vector<std::string> stops;
  std::shared_ptr<const TokenBytes> table;

  // The stop that is complete with this token, -1 if none is: the one complete first, of several the one that began
  // first.
  int32_t push(int32_t token) {
    if (stops.empty() || !table) return -1;
    tail_ += table->of(token);
    int32_t found = -1;
    size_t end = 0, longest = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      longest = std::max(longest, stop.size());
      const size_t at = tail_.find(stop);
      if (at == std::string::npos) continue;
      if (found >= 0 && (at + stop.size() > end || (at + stop.size() == end && stop.size() <= stops[found].size())))
        continue;
      found = static_cast<int32_t>(i);
      end = at + stop.size();
    }
    if (tail_.size() >= longest) tail_.erase(0, tail_.size() - (longest - 1));
    return found;
  }

 private:
  std::string tail_;  // what a stop may have begun in
};

}  // namespace sinkflex
#endif
