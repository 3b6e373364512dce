#include "runtime/model/constants/known_masks.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace dslaunch::runtime::model::constants {
namespace {

at::Tensor forbidden(const at::Tensor& mask) {
  if (mask.scalar_type() == at::kBool) return mask.logical_not();
  const double smallest = AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, mask.scalar_type(), "smallest", [] {
    return static_cast<double>(std::numeric_limits<scalar_t>::lowest());
  });
  return mask.le(smallest);
}

bool is_true(const at::Tensor& condition) {
  return condition.item<bool>();
}

}  // namespace

MaskKind classify_mask(const at::Tensor& mask) {
  if (mask.dim() < 2 || mask.numel() == 0) return MaskKind::kOther;
  const bool is_boolean = mask.scalar_type() == at::kBool;
  if (!is_boolean && !at::isFloatingType(mask.scalar_type())) return MaskKind::kOther;
  const at::Tensor never = forbidden(mask);
  const at::Tensor allowed = is_boolean ? mask : mask.eq(0);
  if (is_true(allowed.all())) return MaskKind::kFull;
  if (mask.size(-1) != mask.size(-2)) return MaskKind::kOther;
  const at::Tensor below = at::ones({mask.size(-2), mask.size(-1)}, allowed.options()).tril();
  const at::Tensor is_as_causal = at::where(below, allowed, never);
  return is_true(is_as_causal.all()) ? MaskKind::kCausal : MaskKind::kOther;
}

void KnownMasks::add(const at::Tensor& constant) {
  if (!constant.defined() || !constant.has_storage() || constant.dim() < 2) return;
  const bool can_be_mask = constant.scalar_type() == at::kBool || at::isFloatingType(constant.scalar_type());
  if (!can_be_mask) return;
  const std::lock_guard lock(mutex_);
  for (auto it = known_.begin(); it != known_.end();) {
    it = it->second.storage.expired() ? known_.erase(it) : std::next(it);
  }
  const auto& storage = constant.storage();
  known_.insert_or_assign(storage.unsafeGetStorageImpl(),
                          Known{storage.getWeakStorageImpl(), static_cast<uint32_t>(constant._version()), {}});
}

KnownMasks::Known* KnownMasks::find(const at::Tensor& mask) {
  if (!mask.has_storage()) return nullptr;
  const auto found = known_.find(mask.storage().unsafeGetStorageImpl());
  if (found == known_.end() || found->second.storage.expired()) return nullptr;
  return static_cast<uint32_t>(mask._version()) == found->second.version ? &found->second : nullptr;
}

MaskKind KnownMasks::kind_of(const at::Tensor& mask, bool may_wait) {
  const std::lock_guard lock(mutex_);
  Known* known = find(mask);
  if (known == nullptr || mask.requires_grad()) return MaskKind::kOther;
  const auto view = std::find_if(known->views.begin(), known->views.end(), [&](const View& other) {
    return other.offset == mask.storage_offset() && mask.sizes() == at::IntArrayRef(other.sizes) &&
           mask.strides() == at::IntArrayRef(other.strides);
  });
  if (view != known->views.end()) return view->kind;
  if (!may_wait) return MaskKind::kOther;
  const MaskKind kind = classify_mask(mask);
  known->views.push_back({mask.storage_offset(), mask.sizes().vec(), mask.strides().vec(), kind});
  return kind;
}

}  // namespace dslaunch::runtime::model::constants
