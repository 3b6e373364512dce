// Checks a saved model's file from outside: is it a zip archive, and are its records those of TorchScript? The launcher
// checks before it removes anything for a run, the worker before it reads the file. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Message: "model 'PATH' WHAT", and how to save a model. Throws UserError(65).
[[noreturn]] void refuse_model(const std::string& path, const std::string& what);

// Throws UserError(65) that says what kind of file it is instead. `head`: the file's first four bytes, or all of a
// shorter file; `tail`: the last kZipEndBytes, or all of a shorter file.
void require_zip(const std::string& path, uint64_t size, std::string_view head, std::string_view tail);

// The same check for an archive's records, by their names inside the archive's single top-level directory.
void require_torchscript(const std::string& path, const std::vector<std::string>& records);

}  // namespace dslaunch
