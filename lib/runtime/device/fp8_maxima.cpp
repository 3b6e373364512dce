#include "runtime/device/fp8_maxima.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace dslaunch::runtime::device {
namespace {

// What a note is about: these values in this memory.
struct NotedValues {
  int64_t offset = 0, numel = 0;
  uint32_t version = 0;
  bool operator==(const NotedValues&) const = default;
};

NotedValues values_of(const at::Tensor& tensor) {
  return {tensor.storage_offset(), tensor.numel(), tensor.unsafeGetTensorImpl()->version_counter().current_version()};
}

// Whether NotedValues says which values these are: writes are counted, and no other view has as many.
bool can_be_noted(const at::Tensor& tensor) {
  return tensor.has_storage() && !tensor.is_inference() && tensor.is_non_overlapping_and_dense() && tensor.numel() > 0;
}

class Notes {
 public:
  void add(const at::Tensor& tensor, at::Tensor slots) {
    const auto storage = tensor.storage().getWeakStorageImpl();
    const std::lock_guard lock(mutex_);
    if (notes_.size() >= limit_) remove_expired();
    notes_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                            Note{storage, values_of(tensor), std::move(slots)});
  }

  at::Tensor find(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto found = notes_.find(tensor.storage().unsafeGetStorageImpl());
    return found != notes_.end() && found->second.values == values_of(tensor) ? found->second.slots : at::Tensor();
  }

 private:
  struct Note {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // so that no other one gets its address
    NotedValues values;
    at::Tensor slots;
  };

  void remove_expired() {
    constexpr size_t kLeast = 64;
    std::erase_if(notes_, [](const auto& note) { return note.second.storage.expired(); });
    limit_ = std::max(kLeast, 2 * notes_.size());
  }

  std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, Note> notes_;
  size_t limit_ = 0;
};

Notes& notes() {
  static auto* const notes = new Notes;  // tensors outlive static objects
  return *notes;
}

}  // namespace

void note_maximum(const at::Tensor& tensor, at::Tensor slots) {
  if (can_be_noted(tensor)) notes().add(tensor, std::move(slots));
}

at::Tensor noted_maximum(const at::Tensor& tensor) {
  return can_be_noted(tensor) ? notes().find(tensor) : at::Tensor();
}

}  // namespace dslaunch::runtime::device
