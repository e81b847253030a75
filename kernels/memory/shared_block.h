// A block of shared memory that carries one value from its owner to any number of readers, and comes back to be used
// again. One object: a header page, then the content. Readers map the content privately, so that what they write stays
// with them.
//
// Who may use the block again: its owner, once nobody reads it. The owner counts a reader in `in_flight` before it
// tells it of the block; the reader turns that into a pin in the row of its own process, and takes the pin back when
// its last view is gone. A third party that learnt of the block from a reader pins by itself: it adds to its row, then
// looks at the generation. The owner that ends the content moves the generation first and looks at the rows then; all
// of these are sequentially consistent, so one of the two sees the other. Rows name processes, so pins of the dead are
// recognised. A block that never becomes idle is let go of instead of used again: the kernel frees its memory with the
// last mapping.
#ifndef SINKFLEX_MEMORY_SHARED_BLOCK_H
#define SINKFLEX_MEMORY_SHARED_BLOCK_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "shared_region.h"

namespace sinkflex {

constexpr uint64_t kBlockHeaderBytes = 4096;
constexpr uint32_t kBlockRows = 240;

struct BlockHeader {
  struct Row {
    std::atomic<uint64_t> holder;  // os::Identity; 0: free
    std::atomic<uint32_t> pins;
    uint32_t unused;
  };
  std::atomic<uint64_t> generation;
  std::atomic<uint32_t> in_flight;
  uint32_t unused;
  Row rows[kBlockRows];
};
static_assert(sizeof(BlockHeader) <= kBlockHeaderBytes);

struct BlockAddress {
  RegionAddress region;  // bytes: of the content
  uint64_t generation;
};

// A block as a reader has it. Holds a pin.
class MappedBlock {
 public:
  enum class Pin {
    kAdopt,  // the owner counted this reader
    kClaim   // it did not: empty when the content is no longer there
  };
  static std::shared_ptr<MappedBlock> open(const BlockAddress& address, Pin pin);
  ~MappedBlock();
  MappedBlock(const MappedBlock&) = delete;
  MappedBlock& operator=(const MappedBlock&) = delete;

  uint8_t* data() const noexcept { return copy_ ? copy_.get() : content_.data(); }
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  MappedBlock() = default;
  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(header_.data()); }
  bool pin(const BlockAddress& address, Pin how);
  void unpin();

  uint64_t bytes_ = 0;
  int32_t row_ = -1;  // -1: no row was free, and the pin is still one of `in_flight`
  os::Mapping header_;
  os::Mapping content_;
  std::unique_ptr<uint8_t[]> copy_;  // instead of a mapping, once the process has very many
};

// A block as its owner has it.
class SharedBlock {
 public:
  static std::unique_ptr<SharedBlock> create(uint64_t capacity);

  uint8_t* data() const noexcept { return content_.data(); }
  uint64_t capacity() const noexcept { return capacity_; }
  uint64_t bytes() const noexcept { return bytes_; }
  BlockAddress address() const;
  // Content of that size begins.
  void begin(uint64_t bytes);
  // It is over: whoever does not have it pinned cannot get it any more.
  void end();
  // What this process writes from now on stays here: the content is fixed.
  void seal();
  void sent(uint64_t channel);
  bool sent_on(uint64_t channel) const;
  uint32_t in_flight() const { return header().in_flight.load(); }
  uint32_t pins() const;                 // by readers that have it mapped
  std::vector<int32_t> holders() const;  // their processes
  bool idle() const { return in_flight() == 0 && pins() == 0; }
  void forget_dead();
  // Every row is taken: third parties cannot pin it any more.
  bool worn() const { return header().rows[kBlockRows - 1].holder.load() != 0; }

 private:
  SharedBlock() = default;
  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(header_.data()); }

  RegionAddress region_{};
  uint64_t capacity_ = 0;
  uint64_t bytes_ = 0;
  bool sealed_ = false;
  std::vector<uint64_t> channels_;
  os::Descriptor descriptor_;
  os::Mapping header_;
  os::Mapping content_;
};

}  // namespace sinkflex

#endif
