// A run's position in its data, in samples. It is independent of world size and batch size, so checkpoints store it.
#pragma once
#include <cstdint>

namespace dslaunch::runtime {

struct DataPosition {
  int64_t epoch = 0;   // counts from 0
  int64_t offset = 0;  // samples of this epoch that have been dealt already

  bool operator==(const DataPosition&) const = default;
};

}  // namespace dslaunch::runtime
