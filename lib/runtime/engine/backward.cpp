#include "runtime/engine/backward.hpp"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("backward of the loss failed: {}", first_line(what)));
}

}  // namespace

void run_backward(const at::Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("out of device memory in backward: {}", first_line(error.what_without_backtrace())));
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

}  // namespace dslaunch::runtime
