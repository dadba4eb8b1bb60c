"""What this machine has, and whether it is enough: the checks of the doctor.

Nothing here imports TensorFlow or TFF, which may be what is broken.
"""
