// JavaScript's BlockPool, SharedBlock, BlockView and openBlock. kernels/shared-block.ts is the typed face.
#include <cstring>
#include <vector>

#include "../memory/block_pool.h"
#include "../memory/bulk_copy.h"
#include "../memory/spill.h"
#include "addon.h"
#include "native_task.h"
#include "quiet_buffer.h"
#include "region.h"
#include "values.h"
#include "views.h"

namespace sinkflex {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 46;
constexpr napi_type_tag kPoolTag = {0x3fb1e6c82d904a57, 0xb7120c4ea95d68f3};

// What a reader needs to open a block, as it travels. Same host, so in the host's byte order.
struct Descriptor {
  int32_t pid;
  int32_t fd;
  uint64_t start_time;
  uint64_t nonce;
  uint64_t generation;
  uint64_t bytes;
};
static_assert(sizeof(Descriptor) == 40);

Napi::Value descriptor_of(Napi::Env env, const SharedBlock& block) {
  const BlockAddress address = block.address();
  const Descriptor descriptor{address.region.pid,   address.region.fd,  address.region.start_time,
                              address.region.nonce, address.generation, address.region.bytes};
  auto bytes = Napi::Uint8Array::New(env, sizeof descriptor);
  std::memcpy(bytes.Data(), &descriptor, sizeof descriptor);
  return bytes;
}

BlockAddress address_of(const Napi::Value& value) {
  Descriptor descriptor;
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().ByteLength() != sizeof descriptor)
    throw Error("SINKFLEX_BAD_ARGUMENT", "a descriptor of a block has 40 bytes");
  std::memcpy(&descriptor, value.As<Napi::Uint8Array>().Data(), sizeof descriptor);
  if (descriptor.pid < 1 || descriptor.fd < 0 || descriptor.bytes < 1 || descriptor.bytes > kLargest)
    throw Error("SINKFLEX_BAD_ARGUMENT", "this is no descriptor of a block");
  return {{descriptor.pid, descriptor.start_time, descriptor.fd, descriptor.nonce, descriptor.bytes},
          descriptor.generation};
}

// (offsets, Uint8Arrays): where each goes
void write_pieces(SharedBlock& block, const Napi::Value& offsets_value, const Napi::Value& sources_value) {
  const auto offsets = offsets_value.As<Napi::Array>();
  const auto sources = sources_value.As<Napi::Array>();
  std::vector<CopyPiece> pieces;
  pieces.reserve(sources.Length());
  for (uint32_t i = 0; i < sources.Length(); i++) {
    const auto source = Napi::Value(sources[i]).As<Napi::Uint8Array>();
    const auto offset = static_cast<uint64_t>(Napi::Value(offsets[i]).As<Napi::Number>().Int64Value());
    if (offset > block.bytes() || source.ByteLength() > block.bytes() - offset)
      throw Error("SINKFLEX_BAD_ARGUMENT", "a piece does not fit into its block");
    pieces.push_back({block.data() + offset, source.Data(), source.ByteLength()});
  }
  bulk_copy(pieces);
}

class BlockViewWrap : public Napi::ObjectWrap<BlockViewWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "BlockView", {InstanceMethod<&BlockViewWrap::view>("view")});
  }
  explicit BlockViewWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    if (!info[0].IsExternal()) throw Napi::TypeError::New(info.Env(), "openBlock makes block views");
    block_ = *info[0].As<Napi::External<std::shared_ptr<MappedBlock>>>().Data();
  }

 private:
  Napi::Value view(const Napi::CallbackInfo& info) {
    return guard(info.Env(), [&]() -> Napi::Value {
      const uint64_t offset = integer_argument(info, 0, "offset", 0, block_->bytes());
      const uint64_t bytes = integer_argument(info, 1, "bytes", 0, std::min(kViewLimit, block_->bytes() - offset));
      return view_of(info.Env(), block_->data() + offset, bytes, block_);
    });
  }

  std::shared_ptr<MappedBlock> block_;
};

class PoolWrap : public Napi::ObjectWrap<PoolWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "BlockPool",
                       {InstanceMethod<&PoolWrap::send>("send"), InstanceMethod<&PoolWrap::channel_gone>("channelGone"),
                        InstanceMethod<&PoolWrap::trim>("trim"), InstanceMethod<&PoolWrap::leave>("leave"),
                        InstanceMethod<&PoolWrap::stats>("stats")});
  }

  explicit PoolWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guard(info.Env(), [&] { pool_ = BlockPool::join(region_address(object_argument(info, 0))); });
    info.This().As<Napi::Object>().TypeTag(&kPoolTag);
  }

  ~PoolWrap() override { leave(); }

  static std::shared_ptr<BlockPool> of(const Napi::Value& value) {
    if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&kPoolTag))
      throw Napi::TypeError::New(value.Env(), "expected a BlockPool");
    return Unwrap(value.As<Napi::Object>())->pool_;
  }

 private:
  // (bytes, offsets, Uint8Arrays, channel, reserve) -> descriptor of a block that one reader gets
  Napi::Value send(const Napi::CallbackInfo& info) {
    return guard(info.Env(), [&] {
      const auto lease = pool_->take(integer_argument(info, 0, "bytes", 1, kLargest),
                                     integer_argument(info, 4, "reserve", 0, kLargest));
      write_pieces(lease->block(), info[1], info[2]);
      lease->block().sent(integer_argument(info, 3, "channel", 0, kLargest));
      return descriptor_of(info.Env(), lease->block());
    });
  }
  void channel_gone(const Napi::CallbackInfo& info) {
    guard(info.Env(), [&] { pool_->channel_gone(integer_argument(info, 0, "channel", 0, kLargest)); });
  }
  void trim(const Napi::CallbackInfo&) { pool_->trim(); }
  void leave(const Napi::CallbackInfo&) { leave(); }
  void leave() {
    if (pool_ != nullptr && !left_) pool_->leave();
    left_ = true;
  }
  Napi::Value stats(const Napi::CallbackInfo& info) {
    const BlockPool::Stats stats = pool_->stats();
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("limit", static_cast<double>(stats.limit));
    object.Set("hostUsed", static_cast<double>(stats.host_used));
    object.Set("used", static_cast<double>(stats.used));
    object.Set("free", static_cast<double>(stats.free));
    object.Set("waiting", static_cast<double>(stats.waiting));
    object.Set("held", static_cast<double>(stats.held));
    object.Set("blocks", static_cast<double>(stats.blocks));
    return object;
  }

  std::shared_ptr<BlockPool> pool_;
  bool left_ = false;
};

class BlockWrap : public Napi::ObjectWrap<BlockWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(
        env, "SharedBlock",
        {InstanceMethod<&BlockWrap::descriptor>("descriptor"), InstanceMethod<&BlockWrap::count>("count"),
         InstanceMethod<&BlockWrap::write>("write"), InstanceMethod<&BlockWrap::view>("view"),
         InstanceMethod<&BlockWrap::seal>("seal"), InstanceMethod<&BlockWrap::sent>("sent"),
         InstanceMethod<&BlockWrap::state>("state"), InstanceMethod<&BlockWrap::release>("release"),
         InstanceMethod<&BlockWrap::transfer>("transfer"),
         InstanceMethod<&BlockWrap::transfer_later>("transferLater")});
  }

  // (pool, bytes, reserve)
  explicit BlockWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    const auto pool = PoolWrap::of(info[0]);
    guard(info.Env(), [&] {
      lease_ = pool->take(integer_argument(info, 1, "bytes", 1, kLargest),
                          integer_argument(info, 2, "reserve", 0, kLargest));
    });
  }

  void Finalize(Napi::Env env) override { drop(env); }

 private:
  const std::shared_ptr<BlockPool::Lease>& lease(Napi::Env env) const {
    if (lease_ == nullptr) throw make_error(env, "SINKFLEX_MEMORY_GONE", "this block was released");
    return lease_;
  }
  void drop(Napi::Env env) {
    if (lease_ == nullptr) return;
    lease_.reset();
    if (counted_ > 0) Napi::MemoryManagement::AdjustExternalMemory(env, -counted_);
  }
  // From now on V8 counts its bytes, so that refs which nobody released are collected in time. It may collect at once.
  void count(const Napi::CallbackInfo& info) {
    if (lease_ == nullptr || counted_ > 0) return;
    counted_ = static_cast<int64_t>((*lease_)->bytes());
    Napi::MemoryManagement::AdjustExternalMemory(info.Env(), counted_);
  }

  Napi::Value descriptor(const Napi::CallbackInfo& info) {
    return descriptor_of(info.Env(), lease(info.Env())->block());
  }
  void write(const Napi::CallbackInfo& info) {
    SharedBlock& block = lease(info.Env())->block();
    guard(info.Env(), [&] { write_pieces(block, info[0], info[1]); });
  }
  // (offset, bytes) -> ArrayBuffer of the owner: what is written is the content, until it is sealed
  Napi::Value view(const Napi::CallbackInfo& info) {
    const auto& lease = this->lease(info.Env());
    return guard(info.Env(), [&]() -> Napi::Value {
      const uint64_t size = lease->block().bytes();
      const uint64_t offset = integer_argument(info, 0, "offset", 0, size);
      const uint64_t bytes = integer_argument(info, 1, "bytes", 0, std::min(kViewLimit, size - offset));
      return view_of(info.Env(), lease->block().data() + offset, bytes, lease);
    });
  }
  void seal(const Napi::CallbackInfo& info) {
    SharedBlock& block = lease(info.Env())->block();
    guard(info.Env(), [&] { block.seal(); });
  }
  void sent(const Napi::CallbackInfo& info) {
    SharedBlock& block = lease(info.Env())->block();
    guard(info.Env(), [&] { block.sent(integer_argument(info, 0, "channel", 0, kLargest)); });
  }
  Napi::Value state(const Napi::CallbackInfo& info) {
    const SharedBlock& block = lease(info.Env())->block();
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("bytes", static_cast<double>(block.bytes()));
    object.Set("pins", block.pins());
    object.Set("inFlight", block.in_flight());
    Napi::Array pids = Napi::Array::New(info.Env());
    for (const int32_t pid : block.holders()) pids.Set(pids.Length(), pid);
    object.Set("holders", pids);
    return object;
  }
  void release(const Napi::CallbackInfo& info) { drop(info.Env()); }

  // (descriptor of a file, out) -> checksum; in this thread, or in another one
  static std::string move(const BlockPool::Lease& lease, int fd, bool out) {
    const SharedBlock& block = lease.block();
    const uint64_t sum = out ? write_out(fd, block.data(), block.bytes()) : read_in(fd, block.data(), block.bytes());
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
    return text;
  }
  Napi::Value transfer(const Napi::CallbackInfo& info) {
    const auto& lease = this->lease(info.Env());
    return guard(info.Env(), [&]() -> Napi::Value {
      const int fd = static_cast<int>(integer_argument(info, 0, "fd", 0, INT32_MAX));
      return Napi::String::New(info.Env(), move(*lease, fd, info[1].ToBoolean()));
    });
  }
  Napi::Value transfer_later(const Napi::CallbackInfo& info) {
    const auto lease = this->lease(info.Env());
    return guard(info.Env(), [&]() -> Napi::Value {
      const int fd = static_cast<int>(integer_argument(info, 0, "fd", 0, INT32_MAX));
      const bool out = info[1].ToBoolean();
      const auto sum = std::make_shared<std::string>();
      return run_native(
          info.Env(), "sinkflex:spill", std::make_shared<std::atomic<bool>>(false),
          [=] { *sum = move(*lease, fd, out); },
          [=](Napi::Env env) -> Napi::Value { return Napi::String::New(env, *sum); });
    });
  }

  std::shared_ptr<BlockPool::Lease> lease_;
  int64_t counted_ = 0;
};

// Of one environment.
struct Views {
  Napi::FunctionReference block_view;
  QuietBuffers buffers;
};

// (descriptor, claim) -> ArrayBuffer, or BlockView when it would be too large, or undefined when a claim came too late
Napi::Value open_block(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const auto pin = info[1].ToBoolean() ? MappedBlock::Pin::kClaim : MappedBlock::Pin::kAdopt;
    const auto block = MappedBlock::open(address_of(info[0]), pin);
    if (block == nullptr) return env.Undefined();
    auto& views = *static_cast<Views*>(info.Data());
    if (block->bytes() <= kViewLimit) return views.buffers.make(env, block->data(), block->bytes(), block);
    auto held = Napi::External<std::shared_ptr<MappedBlock>>::New(
        env, new std::shared_ptr<MappedBlock>(block),
        [](Napi::Env, std::shared_ptr<MappedBlock>* kept) { delete kept; });
    return views.block_view.New({held});
  });
}

// (slack): V8 knows of all views from now on, or of all but so many bytes -> {views, external}: bytes that are there,
// and what V8 counts of all external memory
Napi::Value tell_views(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&] {
    const auto slack = static_cast<int64_t>(integer_argument(info, 0, "slack", 0, kLargest));
    auto& buffers = static_cast<Views*>(info.Data())->buffers;
    Napi::Object counts = Napi::Object::New(info.Env());
    counts.Set("external", static_cast<double>(buffers.tell(info.Env(), slack)));
    counts.Set("views", static_cast<double>(buffers.live()));
    return counts;
  });
}

// (ArrayBuffer): it becomes empty now, and lets go of what it showed some turns later
void detach(const Napi::CallbackInfo& info) {
  if (!info[0].IsArrayBuffer()) return;
  auto buffer = info[0].As<Napi::ArrayBuffer>();
  if (!buffer.IsDetached()) buffer.Detach();
}

// Unique in the process.
Napi::Value new_channel(const Napi::CallbackInfo& info) {
  static std::atomic<uint32_t> next{1};
  return Napi::Number::New(info.Env(), next.fetch_add(1));
}

}  // namespace

void init_shared_block(Napi::Env env, Napi::Object exports) {
  exports.Set("BlockPool", PoolWrap::define(env));
  exports.Set("SharedBlock", BlockWrap::define(env));
  auto* views = new Views{Napi::Persistent(BlockViewWrap::define(env)), {}};
  env.AddCleanupHook([](Views* held) { delete held; }, views);
  exports.Set("openBlock", Napi::Function::New(env, open_block, "openBlock", views));
  exports.Set("tellViews", Napi::Function::New(env, tell_views, "tellViews", views));
  exports.Set("detach", Napi::Function::New(env, detach, "detach"));
  exports.Set("newChannel", Napi::Function::New(env, new_channel, "newChannel"));
}

}  // namespace sinkflex
