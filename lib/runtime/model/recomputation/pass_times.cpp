#include "runtime/model/recomputation/pass_times.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "base/format.hpp"

namespace dslaunch::runtime::model::recomputation {

std::string PassTimes::take_line() {
  if (!profile_) return {};
  return fmt::format("recomputation: {} calls | forward {:.2f} ms | recomputation and backward {:.2f} ms",
                     std::exchange(num_calls_, 0), std::exchange(forward_ms_, 0.0), std::exchange(backward_ms_, 0.0));
}

void PassTimes::wait_for_device() const {
  if (!synchronize_ || device_.is_cpu()) return;
  c10::impl::VirtualGuardImpl guard(device_.type());
  guard.getStream(device_).synchronize();
}

}  // namespace dslaunch::runtime::model::recomputation
