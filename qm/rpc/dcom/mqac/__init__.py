"""[MC-MQAC]: its interfaces as data, and its objects as callers see them."""
