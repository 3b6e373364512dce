#include "base/parallel_for_each.hpp"

#include <exception>
#include <thread>
#include <vector>

namespace dslaunch {

void parallel_for_each(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  {
    std::vector<std::jthread> threads;  // joined at the end of the scope, also when a thread is refused
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          work(i);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace dslaunch
