#!/usr/bin/env python3
"""cmake/find_nvcc among compilers that only look like one: a toolkit of another CUDA release, a wrapper whose toolkit is
gone. What this machine has of its own comes behind them."""
import os
import subprocess
import tempfile
import unittest

FIND_NVCC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../cmake/find_nvcc")

OF_RELEASE = "#!/bin/sh\n[ $1 = --version ] && echo 'Cuda compilation tools, release {0}, V{0}.89'\nexit 0\n"
TOOLKIT_GONE = "#!/bin/sh\nexec /nonexistent/bin/nvcc \"$@\"\n"
WITHOUT_HEADERS = ("#!/bin/sh\n[ $1 = --version ] && echo 'release 13.0, V13.0.88' && exit 0\n"
                   "echo 'In file included from here:' >&2\necho 'cuda_runtime.h: No such file' >&2\nexit 2\n")


class FindNvcc(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def nvcc(self, name, text):
        """A compiler in a folder bin/ of its own, as toolkits have it."""
        os.makedirs(os.path.join(self.folder, name, "bin"))
        path = os.path.join(self.folder, name, "bin/nvcc")
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def find(self, **environment):
        return subprocess.run([FIND_NVCC, self.folder], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], **environment})

    def test_another_release_is_skipped_and_named(self):
        old, good = self.nvcc("old", OF_RELEASE.format("11.8")), self.nvcc("good", OF_RELEASE.format("13.1"))
        found = self.find(CUDACXX=old, CUDA_HOME=os.path.join(self.folder, "good"))
        self.assertEqual((found.returncode, found.stdout), (0, good + "\n"))
        self.assertEqual(found.stderr, f"{old} is of CUDA 11.8, and torch here is of CUDA 13\n")

    def test_a_broken_nvcc_is_skipped_with_its_error(self):
        broken, bare = self.nvcc("broken", TOOLKIT_GONE), self.nvcc("bare", WITHOUT_HEADERS)
        self.nvcc("nvidia/cu13", OF_RELEASE.format("13.0"))  # where PyPI's wheels have it
        found = self.find(CUDACXX=broken, CUDA_HOME=os.path.join(self.folder, "bare"), PATH="/usr/bin:/bin")
        self.assertEqual(found.returncode, 0)
        self.assertNotIn(found.stdout.strip(), (broken, bare))
        self.assertRegex(found.stderr, f"{broken} does not work: .*/nonexistent/bin/nvcc")
        self.assertIn(f"{bare} does not work: cuda_runtime.h: No such file\n", found.stderr)

    def test_a_named_nvcc_is_found_on_the_path_or_an_error(self):
        good = self.nvcc("good", OF_RELEASE.format("13.0"))
        path = os.path.dirname(good) + ":/usr/bin:/bin"
        os.rename(good, good + "-13")
        found = self.find(CUDACXX="nvcc-13", PATH=path)
        self.assertEqual((found.returncode, found.stdout, found.stderr), (0, good + "-13\n", ""))
        self.assertIn("CUDACXX names nvcc-12, which is not found\n", self.find(CUDACXX="nvcc-12", PATH=path).stderr)

    def test_the_named_host_compiler_is_used(self):
        only_with = self.nvcc("with", "#!/bin/sh\n[ $1 = --version ] && echo 'release 13.0,' && exit 0\n"
                                      "case \"$*\" in *'-ccbin g++-12'*) ;; *) echo error; exit 1; esac\n")
        self.assertEqual(self.find(CUDACXX=only_with, CUDAHOSTCXX="g++-12").stdout, only_with + "\n")
        self.assertNotEqual(self.find(CUDACXX=only_with).stdout, only_with + "\n")

    def test_the_first_nvcc_of_the_path_is_used(self):
        good = self.nvcc("good", OF_RELEASE.format("13.0"))
        found = self.find(PATH=os.path.dirname(good) + ":/usr/bin:/bin")
        self.assertEqual((found.returncode, found.stdout, found.stderr), (0, good + "\n", ""))


if __name__ == "__main__":
    unittest.main()
