// Whether the process that started another one is still there. The kernel gives an orphan a new parent (init, or a
// subreaper) and keeps no word of it, so this follows from what a parent cannot have done. Pure.
#pragma once
#include <optional>

#include "ports/process_info.hpp"

namespace dslaunch::ports {

enum class Parenthood {
  kAlive,    // the parent started it, or nothing speaks against that
  kLost,     // its parent is gone; who is named as its parent now only took it over
  kUnclear,  // its parent is pid 1, which may have started it, or lies outside of this container
};

// `parent`: what stands under child.parent; empty: nobody there.
Parenthood parenthood(const ProcessInfo& child, const std::optional<ProcessInfo>& parent);

}  // namespace dslaunch::ports
