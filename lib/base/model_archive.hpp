// What a saved model's file shows from outside: is it a zip archive, and are its records those of TorchScript? The
// launcher looks before it removes anything for a run of it, the worker before it reads it. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// "model 'PATH' WHAT", and how one is saved. Throws UserError(65).
[[noreturn]] void refuse_model(const std::string& path, const std::string& what);

// Throws UserError(65) that says what else it is. `head`: the file's first bytes, four where it has them; `tail`: its
// last ones, kZipEndBytes where it has them.
void require_zip(const std::string& path, uint64_t size, std::string_view head, std::string_view tail);

// The same of an archive's records, by their names inside of its one folder.
void require_torchscript(const std::string& path, const std::vector<std::string>& records);

}  // namespace dslaunch
