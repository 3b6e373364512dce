#include "runtime/engine/backward.hpp"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/script_error.hpp"

namespace dslaunch::runtime {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("backward of the model failed: {}", cause_in(what)));
}

}  // namespace

void run_backward(const at::Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("out of device memory in backward: {}", cause_in(error.what_without_backtrace())));
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

}  // namespace dslaunch::runtime
