// "tensorboard": one event file per process, named as TensorBoard's own writer names it. One thread.
#pragma once
#include <functional>
#include <string>

#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/monitor.hpp"

namespace dslaunch::runtime {

class TensorBoardMonitor final : public Monitor {
 public:
  // `now`: seconds since 1970.
  using Clock = std::function<double()>;
  explicit TensorBoardMonitor(const std::string& directory, Clock now = wall_clock);
  void write(std::span<const ScalarEvent> events) override;
  void write_texts(std::span<const TextEvent> events) override;

  static double wall_clock();

 private:
  const Clock now_;
  AppendFile file_;
};

}  // namespace dslaunch::runtime
