"""Object stores: addresses, snapshots of folders, mirrors on local disk."""
