// Gives the precompiled header of LibTorch a target to belong to.
