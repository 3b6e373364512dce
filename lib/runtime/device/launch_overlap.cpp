#include "runtime/device/launch_overlap.hpp"

#include <utility>

namespace dslaunch::runtime::device {
namespace {

thread_local bool overlaps = false;

}  // namespace

bool overlaps_launches() {
  return overlaps;
}

LaunchOverlap::LaunchOverlap() : before_(std::exchange(overlaps, true)) {}

LaunchOverlap::~LaunchOverlap() {
  overlaps = before_;
}

}  // namespace dslaunch::runtime::device
