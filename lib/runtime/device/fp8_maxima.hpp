// The largest magnitude of a bf16 tensor, found by the kernel that has written it: the cast to fp8 with one scale then
// reads the tensor once instead of twice. Notes hold for the values that were noted: a tensor that was written to
// since, or a view of a part of it, has none. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime::device {

// Bits of bf16 without the sign. The largest of `kMaximumSlots` numbers counts, of which each is the first of
// `kSlotStride`: so many addresses that warps do not wait for one another.
inline constexpr int64_t kMaximumSlots = 64, kSlotStride = 8, kMaximumSize = kMaximumSlots * kSlotStride;

// `slots`: int32 [kMaximumSize] on the tensor's device, which work that is enqueued already fills. They stay as long as
// the tensor's memory does. Of a tensor that is not dense nothing is noted.
void note_maximum(const at::Tensor& tensor, at::Tensor slots);

// Undefined: it is not known.
at::Tensor noted_maximum(const at::Tensor& tensor);

}  // namespace dslaunch::runtime::device
