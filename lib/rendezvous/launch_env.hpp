// What a rank must know to join a job. The launcher writes it into the environment of each rank and the worker reads
// it; both halves are here so that they cannot drift apart. torchrun's variables are the base, so a worker started by
// torchrun, Slurm or a notebook can join as well (without a token: rank 0 then serves the store itself on
// MASTER_ADDR:MASTER_PORT).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch::rendezvous {

// The default of torchrun and DeepSpeed.
inline constexpr uint16_t kDefaultMasterPort = 29500;
// The job's secret, in hexadecimal digits.
inline constexpr const char* kTokenVariable = "DSLAUNCH_TOKEN";
// Returns 32 bytes. Throws UserError(78), whose message does not contain the value.
std::vector<uint8_t> parse_token(const std::string& text);

struct LaunchEnv {
  int rank = 0, local_rank = 0, node_rank = 0;
  int world_size = 1, local_world_size = 1, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;                 // 0 only for a world size of 1 that needs no store
  std::string host = "localhost";           // name of this rank's host as the user wrote it
  std::string job_id;                       // not secret; marks the job's processes (DSLAUNCH_JOB_ID)
  std::vector<uint8_t> token;               // 32 bytes; empty when another launcher started us
  bool agent_store = false;                 // true: our agent serves the store; false: rank 0 must serve it
  std::vector<std::string> rank_hosts;      // host of every rank for messages; may be empty
  int restart_count = 0, max_restarts = 0;  // of the whole job
  // A store in torch's protocol holds MASTER_PORT: torchrun's, or our agent's under `dslaunch exec`. torch's ranks are
  // its clients; rank 0 of a worker serves our store on another port and publishes that port in torch's store.
  bool torch_agent_store = false;
  std::string torch_run;  // identifies this attempt in that store: run id and restart count

  // `dslaunch run` started this rank and supervises its run directory; false for a start by hand, by torchrun or by
  // `dslaunch exec`.
  bool is_of_a_run() const { return !token.empty() && !torch_agent_store; }
};

// RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, MASTER_ADDR, MASTER_PORT, ... and DSLAUNCH_*.
std::map<std::string, std::string> to_environment(const LaunchEnv& env);

// Reads this process's environment; without RANK, mpirun's variables (OMPI_COMM_WORLD_RANK, PMI_RANK, MPI_LOCALRANKID,
// ...) are used instead. With none of them set: a world size of one. Must not run while another thread changes the
// environment.
// Throws UserError(78) naming the variable when the set is incomplete or contradicts itself: RANK without WORLD_SIZE,
// RANK >= WORLD_SIZE, a MASTER_PORT that is not a number, and the like.
LaunchEnv launch_env_from_environment();

}  // namespace dslaunch::rendezvous
