#include "base/input_wait.hpp"

#include <cmath>

#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch {

void InputWait::add(double step_ms, double input_ms) {
  if (!std::isfinite(step_ms) || !std::isfinite(input_ms)) return;
  num_steps_ += 1;
  step_ms_ += step_ms;
  input_ms_ += input_ms;
}

double InputWait::share() const {
  return step_ms_ > 0 ? input_ms_ / step_ms_ : 0;
}

std::string InputWait::text() const {
  return fmt::format("steps waited {} of {} ms for their input", format_ms(mean_ms()),
                     format_ms(share() > 0 ? mean_ms() / share() : 0));
}

std::string input_advice(int64_t num_workers) {
  const std::string now = num_workers >= 0 ? fmt::format(" (now {})", num_workers) : "";
  return fmt::format(
      "raise data.num_workers{} while processors are idle, keep the data where it is read faster (local disk, memory "
      "for the page cache), and store fewer bytes: pictures as uint8 with data.normalize, floats in the compute type",
      now);
}

}  // namespace dslaunch
