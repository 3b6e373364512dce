// Rounds of the CPU optimizer over host memory, one for each line of standard input, for bench/cpu_adam:
//
//   adam_rounds COUNT THREADS [4k]
//
// The lines are "adam TYPE", "stream TYPE" and "copy TYPE", the answers two numbers of milliseconds: on the clock, and
// processor time of all threads together. TYPE is that of the gradient:
// bf16, fp16 or fp32; parameters in bf16 are written in the same pass. "stream" reads and writes the same bytes and
// computes nothing, with non-temporal stores; "copy" does so with ordinary stores to the lines that it has read. Arrays
// lie in 2 MiB pages, with "4k" in ordinary ones. Statically linked, so it runs on machines where nothing is built.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <stdexcept>
#include <string>

#include "runtime/optim/update_rounds.hpp"

namespace {

using namespace dslaunch::runtime;
using optim::host::ElementType;
using optim::host::RoundWork;

RoundWork work_of(const std::string& kind) {
  if (kind == "adam") return RoundWork::kUpdate;
  if (kind == "stream") return RoundWork::kStream;
  if (kind == "copy") return RoundWork::kCopy;
  throw std::runtime_error("no such round: " + kind);
}

ElementType type_of(const std::string& name) {
  if (name == "fp32") return ElementType::kFloat32;
  if (name == "bf16") return ElementType::kBFloat16;
  if (name == "fp16") return ElementType::kFloat16;
  throw std::runtime_error("no type: " + name);
}

double milliseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

void answer(optim::host::UpdateRounds& rounds, ThreadTeam& team, RoundWork work, ElementType gradient) {
  const double began = milliseconds(CLOCK_MONOTONIC), cpu_began = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
  rounds.run(team, work, optim::host::RoundOptimizer::kAdam, gradient);
  const double ended = milliseconds(CLOCK_MONOTONIC), cpu_ended = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
  std::cout << ended - began << " " << cpu_ended - cpu_began << std::endl;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("adam_rounds COUNT THREADS [4k]");
  ThreadTeam team(std::atoi(argv[2]));
  const bool huge_pages = argc < 4 || std::string(argv[3]) != "4k";
  optim::host::UpdateRounds rounds(std::atoll(argv[1]), team, huge_pages);
  std::cout << "ready " << static_cast<int>(optim::host::best_instruction_set()) << std::endl;
  for (std::string kind, type; std::cin >> kind >> type;) answer(rounds, team, work_of(kind), type_of(type));
} catch (const std::exception& error) {
  std::fprintf(stderr, "adam_rounds: %s\n", error.what());
  return 1;
}
