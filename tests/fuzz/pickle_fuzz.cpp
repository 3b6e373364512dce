// Any bytes as a pickle: data comes out, or an error of the user's; never more values than bytes allow.
#include <cstdlib>

#include "base/error.hpp"
#include "runtime/checkpoint/pickle/pickle_reader.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto document = pickle::read_pickle({data, size}, "fuzz", {.max_values = 1 << 16});
    // An opcode makes at most three values.
    if (document->num_values() > 3 * size + 1) std::abort();
    const auto& root = document->root();
    (void)root.find("x");
    (void)root.attribute("x");
    (void)root.as_integer();
    (void)root.class_name();
  } catch (const UserError&) {
  }
  return 0;
}
