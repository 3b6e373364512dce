// Whether kernels that can may start while the kernel before them on the stream still runs
// (kernels/overlapped_launch.h). They read weights, tables and what is kept of earlier tokens before the other
// kernel has ended, so that it must not write these. Per thread.
#pragma once

namespace dslaunch::runtime::device {

bool overlaps_launches();

// On this thread, while it lives.
class LaunchOverlap {
 public:
  LaunchOverlap();
  LaunchOverlap(const LaunchOverlap&) = delete;
  LaunchOverlap& operator=(const LaunchOverlap&) = delete;
  ~LaunchOverlap();

 private:
  const bool before_;
};

}  // namespace dslaunch::runtime::device
