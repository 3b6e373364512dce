// Function objects as one, for std::visit: without a handler for an alternative it does not compile.
#pragma once

namespace dslaunch {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace dslaunch
