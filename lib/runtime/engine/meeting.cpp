#include "runtime/engine/meeting.hpp"

#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"

namespace dslaunch::runtime {
namespace {

// Nothing when all have come; else who has not.
std::optional<std::string> wait_for_all(rendezvous::Store& store, int world_size, const std::string& event,
                                        std::chrono::milliseconds patience) {
  try {
    store.barrier("units/" + event, world_size, Deadline::after(patience));
    return std::nullopt;
  } catch (const TimeoutError& error) {
    return error.what();
  }
}

}  // namespace

void meet_all(rendezvous::Store& store, int world_size, int64_t step, const std::string& event,
              const MeetingPatience& patience) {
  const auto late = wait_for_all(store, world_size, event, patience.quiet);
  if (!late) return;
  const auto here = fmt::format("step {}: this rank came to the {}, which the first step did not have", step, event);
  const char* const advice =
      "At ZeRO stages 2 and 3 control flow that depends on a rank's own data has to show in the first step; or use "
      "stage 0 or 1";
  log::warning("{}, and still waits for the others ({}). If their data does not lead them there, it waits in vain. {}",
               here, *late, advice);
  if (const auto absent = wait_for_all(store, world_size, event, patience.more)) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{}, and waited for the others in vain ({}). {}", here, *absent, advice));
  }
}

}  // namespace dslaunch::runtime
