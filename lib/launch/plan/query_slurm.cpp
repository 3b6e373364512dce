#include "launch/plan/query_slurm.hpp"

#include <array>
#include <cstdio>
#include <memory>

#include "base/format.hpp"

namespace dslaunch::launch {

void query_gpus(hostfile::SlurmSituation& situation) {
  // No user input enters this command line; the quoted part is for the shell on the nodes.
  std::string command = fmt::format(
      "timeout -k 2 20 srun --overlap --quiet --nodes={0} --ntasks={0} --ntasks-per-node=1 --chdir=/ "
      "sh -c 'echo \"$SLURMD_NODENAME ${{SLURM_GPUS_ON_NODE:-0}}\"' </dev/null 2>/dev/null",
      situation.num_nodes);
  std::unique_ptr<FILE, int (*)(FILE*)> answers(::popen(command.c_str(), "re"), &::pclose);
  if (!answers) return;
  std::string text;
  std::array<char, 4096> chunk;
  while (size_t count = std::fread(chunk.data(), 1, chunk.size(), answers.get())) text.append(chunk.data(), count);
  hostfile::learn_gpus(situation, text);
}

}  // namespace dslaunch::launch
