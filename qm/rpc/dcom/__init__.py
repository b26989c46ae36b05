"""The objects of [MC-MQAC] over DCOM; may import the rest of `qm.rpc`, `qm.api` and `qm.client`."""
