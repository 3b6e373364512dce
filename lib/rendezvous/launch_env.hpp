// What a rank must know to join a job: written by the launcher into the environment of each rank and read by the
// worker, both here, so that the two cannot drift apart. torchrun's variables are the base, so a worker that torchrun,
// Slurm or a notebook started joins as well (without a token: rank 0 then serves the store itself on
// MASTER_ADDR:MASTER_PORT).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch::rendezvous {

// What torchrun and DeepSpeed take when nothing is said.
inline constexpr uint16_t kDefaultMasterPort = 29500;
// The job's secret, in hexadecimal digits.
inline constexpr const char* kTokenVariable = "DSLAUNCH_TOKEN";
// 32 bytes. Throws UserError(78), without the value.
std::vector<uint8_t> parse_token(const std::string& text);

struct LaunchEnv {
  int rank = 0, local_rank = 0, node_rank = 0;
  int world_size = 1, local_world_size = 1, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;                 // 0 only for a world of 1 that needs no store
  std::string host = "localhost";           // name of this rank's host as the user wrote it
  std::string job_id;                       // not secret; marks the job's processes (DSLAUNCH_JOB_ID)
  std::vector<uint8_t> token;               // 32 bytes; empty when another launcher started us
  bool agent_store = false;                 // true: our agent serves the store; false: rank 0 has to
  std::vector<std::string> rank_hosts;      // host of every rank for messages; may be empty
  int restart_count = 0, max_restarts = 0;  // of the whole job
  // A store in torch's protocol holds MASTER_PORT: torchrun's, or under `dslaunch exec` that of our agent. torch's
  // ranks are its clients; rank 0 of a worker serves ours elsewhere and publishes where there.
  bool torch_agent_store = false;
  std::string torch_run;  // names this attempt in that store: run id and restart count

  // `dslaunch run` started this rank, and watches over its run folder: no start by hand, by torchrun or by our `exec`.
  bool is_of_a_run() const { return !token.empty() && !torch_agent_store; }
};

// RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, MASTER_ADDR, MASTER_PORT, ... and DSLAUNCH_*.
std::map<std::string, std::string> to_environment(const LaunchEnv& env);

// From this process's environment; where there is no RANK, mpirun's variables (OMPI_COMM_WORLD_RANK, PMI_RANK,
// MPI_LOCALRANKID, ...) take its place. Nothing set at all: a world of one. Not while another thread changes the
// environment.
// Throws UserError(78) naming the variable when the set is incomplete or contradicts itself: RANK without WORLD_SIZE,
// RANK >= WORLD_SIZE, a MASTER_PORT that is no number, and the like.
LaunchEnv launch_env_from_environment();

}  // namespace dslaunch::rendezvous
