"""Security providers: who calls, and how calls are signed and sealed. NTLM and SPNEGO are pure."""
