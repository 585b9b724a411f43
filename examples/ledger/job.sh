#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=2 --requeue --open-mode=append
# One job of Slurm: sbatch --job-name=NAME job.sh OPTIONS. After a failure of its node Slurm starts it again.
export OMP_NUM_THREADS=1
mkdir -p "checkpoints/$SLURM_JOB_NAME"
exec holdfast runs exec -o runs --run "$SLURM_JOB_NAME" -- \
  torchrun --standalone --nproc-per-node 2 train.py "checkpoints/$SLURM_JOB_NAME" "$@"
