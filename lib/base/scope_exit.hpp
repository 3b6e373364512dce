// Runs a function where a scope ends, also when an exception ends it.
#pragma once
#include <utility>

namespace dslaunch {

template <class Act>
class [[nodiscard]] ScopeEnd {
 public:
  explicit ScopeEnd(Act act) : act_(std::move(act)) {}
  ~ScopeEnd() { act_(); }  // which must not throw
  ScopeEnd(const ScopeEnd&) = delete;
  ScopeEnd& operator=(const ScopeEnd&) = delete;

 private:
  Act act_;
};

}  // namespace dslaunch
