// The ranks of a job as a mesh of data x pipe x tensor. Pure arithmetic; any thread.
//
//     rank = (pipe * data ranks + data) * tensor ranks + tensor
//
// This is the order of DeepSpeed's PipeModelDataParallelTopology and of Megatron. Ranks are numbered host by host, so
// the axis that communicates most varies fastest. Tensor groups all-reduce activations in every layer: their ranks are
// consecutive, within a host. Data groups reduce and gather once or a few times a step: their ranks are `tensor` apart.
// Pipeline stages pass on one activation: their ranks are data * tensor apart, mostly on different hosts.
//
// A subgroup of data ranks that belongs to one host (the secondary groups of hpZ) is therefore computed in data ranks,
// within the data group, and never in ranks of the world: with `tensor` ranks in a tensor group, a host with L ranks
// has L / tensor neighbouring members of each of its data groups.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::comm {

// A rank's place along each axis.
struct MeshCoordinates {
  int data = 0, pipe = 0, tensor = 0;

  friend bool operator==(const MeshCoordinates&, const MeshCoordinates&) = default;
};

// A set of axes. The ranks that differ only along these axes form a group, so each set divides the world into groups:
// {.data} into data groups, {.pipe, .tensor} into whole models, all three into the world itself.
struct MeshAxes {
  bool data = false, pipe = false, tensor = false;
};

struct Mesh {
  int data = 1, pipe = 1, tensor = 1;  // ranks along each axis

  int size() const { return data * pipe * tensor; }
  // Throw InternalError for coordinates or ranks outside the mesh.
  int rank_at(const MeshCoordinates& at) const;
  MeshCoordinates coordinates(int rank) const;

  // The group of `rank` along `axes`, ascending: position i of a data group is data rank i, and likewise for the pipe
  // and tensor groups.
  std::vector<int> group(int rank, const MeshAxes& axes) const;
  // Which of the groups along `axes` that is, counted from 0 in the order of their first ranks.
  int group_index(int rank, const MeshAxes& axes) const;
};

// Where a rank is: "stage 1", or "tensor rank 1 of 2 of stage 0, data rank 3"; empty if every rank holds a whole model.
std::string describe_place(const Mesh& mesh, int rank);

// The mesh of a world in which each model takes pipe * tensor ranks. Throws UserError(78) when these do not divide the
// world.
Mesh make_mesh(int world_size, int pipe, int tensor);

}  // namespace dslaunch::comm
