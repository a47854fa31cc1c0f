# Floor 5: TLS. libssl finds OpenSSL, engine turns bytes into bytes, transport is the connection.
